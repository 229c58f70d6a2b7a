"""Make the commands of each slice, on pieces of tensors that are loaded, moved and stored.

In: the stages of ``cut`` with the choices of ``choose``. Out: ``forms.calls`` commands in the order
of the operations, whose pieces have no addresses yet; ``schedule`` orders and places them.
``demands`` collects in advance what the layouts of each tensor must suit, ``pieces`` finds or makes
a tensor in a layout, ``tile`` runs the stages and has a method for each operation.
"""

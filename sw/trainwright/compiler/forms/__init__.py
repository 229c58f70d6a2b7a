"""Values that the stages of the compiler hand to each other.

``layout`` has layouts and pieces of tensors, ``windows`` the windows of a convolution in them,
``impls`` the implementations of a contraction, ``choices`` what a search chooses, ``calls`` the
commands. ``nests`` and ``passes`` turn commands into loop nests and vector passes.
"""

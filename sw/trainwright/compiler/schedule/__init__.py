"""Order the commands of a program, and place its pieces in the scratchpad.

In: the commands of ``tile``, on pieces without addresses. Out: ``schedule.Issue``, an order with
estimated times, and an address for every piece. ``schedule`` orders commands where rows are plenty,
``tight`` where they are short; ``place`` gives pieces their rows. ``weave`` orders the commands of
a whole step on the chip, once all of its programs have their rows.
"""

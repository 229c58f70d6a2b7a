"""How it is computed: the accelerator in Amaranth, one block a file, put together in `top`.

Parameter objects and golden functions come from `trainwright`; nothing here knows how the design is
simulated or which board carries it.
"""

"""cocotb benches: every block and the whole accelerator, against peers and models of others.

`catalogue` names the benches, `runner` builds and runs them, `blocks` holds their tests; the rest
is what the tests share.
"""

"""The host link: frames over a serial line, retries, and the accelerator behind them."""

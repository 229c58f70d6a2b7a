"""The sequencer and its parts: program, loops, registers, counters, statistics, watchdog."""

"""The sequencer and what it needs: program, loops, registers, counters, statistics, watchdog."""

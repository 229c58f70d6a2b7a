"""What every stage of the compiler needs: limits, memory, hazards, errors, compiled programs."""

"""What everything else stands on: this machine, its files and processes, settings, progress, interruptions."""

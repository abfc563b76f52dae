"""What the tests of faults share: the promise every command keeps, the ways to damage a file, and the attacks."""

"""The subcommands of kvsim, one file each: with sim.cli, all that prints and exits."""

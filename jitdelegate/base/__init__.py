"""What every part may import: options and their checks, the table of targets, tables of text; errors are `jitdelegate.errors`."""

package command

// watchStops does nothing: on macOS, waiting for a stop would also reap the command. So Ctrl-Z stops only the command.
func (*terminal) watchStops(int) {}

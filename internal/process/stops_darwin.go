package process

// watchStops does nothing, because on macOS a wait for a stop would also reap the command. So Ctrl-Z stops only the command.
func (*terminal) watchStops(int) {}

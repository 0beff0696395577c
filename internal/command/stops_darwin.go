package command

// watch does nothing on macOS, where a stop can't be waited for without reaping the command: there Ctrl-Z stops the command alone.
func (*terminal) watch(int) {}

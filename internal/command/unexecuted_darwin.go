package command

// executed can't be told on macOS.
func executed(int) bool { return true }

// killUnexecuted does nothing on macOS, where a child can't be told from a thread of this process before it has executed its program.
func killUnexecuted(int, tree) (hung int) { return 0 }

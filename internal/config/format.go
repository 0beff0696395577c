package config

import (
	"fmt"
	"strings"
)

// String writes limits as 1GiB of memory, 200 processes and threads.
func (l Limits) String() string {
	var list []string
	if l.Memory > 0 {
		list = append(list, FormatSize(l.Memory)+" of memory")
	}
	if l.Pids > 0 {
		list = append(list, fmt.Sprintf("%d processes and threads", l.Pids))
	}
	return strings.Join(list, ", ")
}

// FormatSize writes a number of bytes as a configuration has it, such as 512MiB.
func FormatSize(n int64) string {
	unit := 0
	for ; unit < 3 && n%1024 == 0; unit++ {
		n /= 1024
	}
	return fmt.Sprint(n, []string{"B", "KiB", "MiB", "GiB"}[unit])
}

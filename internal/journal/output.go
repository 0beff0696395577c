package journal

import (
	"fmt"
	"strings"
	"time"
)

const (
	// blocksPerRun is the number of blocks per record that the history keeps. With several, a partly filled block wastes little of MaxBytes, and many small
	// outputs do not displace each other.
	blocksPerRun = 8
	minBlock     = 256 // bytes; a smaller block would cost more than it holds
)

// blocks describes the space for a job's output: the size of a block in bytes, and the number of blocks.
type blocks struct{ size, count int }

// blocksOf divides the space into blocks.
func blocksOf(maxBytes int64, runs int) blocks {
	size := min(max(maxBytes/int64(blocksPerRun*runs), minBlock), maxBytes)
	return blocks{int(size), int(maxBytes / size)}
}

// outputPrefix returns the prefix of all blocks of one run's output. Blocks are members of a sorted set with equal scores, so Redis orders them by their bytes.
// The prefix begins with the end of the run, so that the oldest output comes first.
func outputPrefix(ended time.Time, id string) string {
	return fmt.Sprintf("%016x|%s|", ended.UnixMicro(), id)
}

// splitOutput divides output into members of the set of blocks. If output exceeds the whole space, only its end is kept. Empty output becomes one empty block.
func (b blocks) splitOutput(prefix, output string) []string {
	if room := b.size * b.count; len(output) > room {
		output = output[len(output)-room:]
	}
	var members []string
	for i := 0; i == 0 || len(output) > 0; i++ {
		n := min(len(output), b.size)
		members = append(members, fmt.Sprintf("%s%06x|%s", prefix, i, output[:n]))
		output = output[n:]
	}
	return members
}

// joinBlocks returns the output in blocks that were found under prefix, in order; nil if there are none. If the first blocks were trimmed, the result is still
// the end of the output.
func joinBlocks(prefix string, members []string) *string {
	if len(members) == 0 {
		return nil
	}
	var b strings.Builder
	for _, m := range members {
		_, data, _ := strings.Cut(strings.TrimPrefix(m, prefix), "|")
		b.WriteString(data)
	}
	s := b.String()
	return &s
}

// outputRange returns the range of members that begin with prefix, which ends in "|".
func outputRange(prefix string) (from, to string) {
	return "[" + prefix, "(" + prefix[:len(prefix)-1] + "}" // "}" follows "|" in ASCII
}

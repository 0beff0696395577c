package journal

import (
	"fmt"
	"strings"
	"time"
)

const (
	// blocksPerRun is how finely output is divided, so that an output that fills
	// a block only in part wastes little of MaxBytes, and many small outputs do
	// not push each other out.
	blocksPerRun = 8
	minBlock     = 256 // bytes; smaller ones would cost more than they hold
)

// blocks is the room for a job's output.
type blocks struct{ size, count int }

// blocksOf divides it.
func blocksOf(maxBytes int64, runs int) blocks {
	size := min(max(maxBytes/int64(blocksPerRun*runs), minBlock), maxBytes)
	return blocks{int(size), int(maxBytes / size)}
}

// outputPrefix begins all blocks of one run's output. Blocks are members of a
// sorted set with equal scores, so their bytes order them: by when the run ended.
func outputPrefix(ended time.Time, id string) string {
	return fmt.Sprintf("%016x|%s|", ended.UnixMicro(), id)
}

// split divides output into members of the set of blocks. It keeps the end of output that does not fit at all. Empty output is one empty block.
func (b blocks) split(prefix, output string) []string {
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

// join puts blocks together that were found under prefix, in their order. The first may have been trimmed already: the result is still a tail. It is
// nil if there are none.
func join(prefix string, members []string) *string {
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

// outputRange is the range of members that begin with prefix, which ends in "|".
func outputRange(prefix string) (from, to string) {
	return "[" + prefix, "(" + prefix[:len(prefix)-1] + "}" // "}" follows "|"
}

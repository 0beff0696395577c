package cronspec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	tzifMagic = "TZif"
	// tzifHeader is the length of the header of a TZif block: magic, version, 15
	// unused bytes, and six counts.
	tzifHeader, tzifCounts = 44, 20
	// mostTransitions is the limit in zic, the compiler of the IANA database.
	mostTransitions = 2000
	mostTypes       = 256
)

// A tzifBlock has the counts of one of the two blocks of a TZif file. width is the size of its times in bytes: 4 in the first block, 8 in the second.
type tzifBlock struct {
	utc, std, leaps, times, types, chars int
	width                                int
}

// size returns the number of bytes of the block after its header.
func (b tzifBlock) size() int {
	return b.times*b.width + b.times + b.types*6 + b.chars + b.leaps*(b.width+4) + b.std + b.utc
}

// checkTZif checks a compiled zone against RFC 9636. It checks what package time does not: the order and the number of the transitions, and the
// offsets. It refuses a zone with leap seconds, because package time ignores them.
func checkTZif(data []byte) error {
	block, rest, err := readTZifBlock(data, 4)
	if err != nil {
		return err
	}
	if data[len(tzifMagic)] != 0 { // in version 2 and later, the second block has the data
		if block, rest, err = readTZifBlock(rest[block.size():], 8); err != nil {
			return err
		}
	}
	if block.leaps > 0 {
		return errors.New("it counts leap seconds")
	}
	return block.checkTransitions(rest)
}

// readTZifBlock parses the header of a block. rest is the data after the header, and contains at least the whole block.
func readTZifBlock(data []byte, width int) (b tzifBlock, rest []byte, err error) {
	if len(data) < tzifHeader || !bytes.HasPrefix(data, []byte(tzifMagic)) {
		return b, nil, errors.New("it is no TZif file, or is cut off")
	}
	var counts [6]int
	for i := range counts {
		n := binary.BigEndian.Uint32(data[tzifCounts+4*i:])
		if n > mostTransitions {
			return b, nil, fmt.Errorf("a count of %d in its header", n)
		}
		counts[i] = int(n)
	}
	b = tzifBlock{counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], width}
	if rest = data[tzifHeader:]; b.types > mostTypes || len(rest) < b.size() {
		return b, nil, errors.New("it is cut off")
	}
	return b, rest, nil
}

// checkTransitions checks the transitions and offsets of a block.
func (b tzifBlock) checkTransitions(data []byte) error {
	for i := range b.times {
		if b.types <= int(data[b.times*b.width+i]) {
			return errors.New("a transition to a type that is missing")
		}
		if i > 0 && b.transitionTime(data, i) <= b.transitionTime(data, i-1) {
			return errors.New("transitions out of order")
		}
	}
	types := data[b.times*(b.width+1):]
	for i := range b.types {
		if offset := int(int32(binary.BigEndian.Uint32(types[6*i:]))); !isOffset(offset) {
			return fmt.Errorf("an offset of %d seconds", offset)
		}
	}
	return nil
}

// transitionTime returns the time of a transition, in Unix seconds.
func (b tzifBlock) transitionTime(data []byte, i int) int64 {
	if b.width == 4 {
		return int64(int32(binary.BigEndian.Uint32(data[4*i:])))
	}
	return int64(binary.BigEndian.Uint64(data[8*i:]))
}

// isOffset reports whether RFC 9636 allows an offset of this number of seconds ahead of UTC.
func isOffset(seconds int) bool { return -25*3600 < seconds && seconds < 26*3600 }

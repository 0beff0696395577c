package script

import "slices"

// parameters describes the arguments of a script, in the order and with the names of the script's header. T is the struct with the values of a call,
// or a pointer to it.
type parameters[T any] []parameter[T]

// A parameter describes one argument. Trailing arguments that are not needed are omitted in groups. needed is set on the first parameter of a group,
// and reports whether a call needs the group.
type parameter[T any] struct {
	name   string
	value  func(T) any
	needed func(T) bool
}

// encode returns the arguments of a call.
func (p parameters[T]) encode(call T) []any { return p.append(nil, call) }

// append appends the arguments of a call to the words of a command.
func (p parameters[T]) append(words []any, call T) []any {
	n := len(p)
	for i := n - 1; i >= 0; i-- {
		if p[i].needed == nil {
			continue
		}
		if p[i].needed(call) {
			break
		}
		n = i
	}
	words = slices.Grow(words, n)
	for _, argument := range p[:n] {
		words = append(words, argument.value(call))
	}
	return words
}

func (p parameters[T]) argNames() []string {
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].name
	}
	return names
}

// flag encodes a boolean for the scripts.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

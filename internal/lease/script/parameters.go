package script

import "slices"

// parameters are the arguments of a script, in its order and by the names in its header. T is a call's arguments, or a pointer to many.
type parameters[T any] []parameter[T]

// parameter is one of them. Arguments at the end of which nothing needs to be said are left out, in groups: needed is set on the first of a
// group.
type parameter[T any] struct {
	name   string
	value  func(T) any
	needed func(T) bool
}

// encode are the arguments for a call.
func (p parameters[T]) encode(call T) []any { return p.append(nil, call) }

// append appends them to the words of a command.
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

func (p parameters[T]) names() []string {
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].name
	}
	return names
}

// flag is a truth value as the scripts have it.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

package engine

// askValid calls ask with the requests that pass check, and refuse for the others. It returns an answer for each request, in order.
func askValid[R, A any](requests []R, check func(R) error, refuse func(R, error) A, ask func([]R) []A) []A {
	answers := make([]A, len(requests))
	valid := make([]R, 0, len(requests))
	places := make([]int, 0, len(requests)) // the indexes of the valid requests
	for i, r := range requests {
		if err := check(r); err != nil {
			answers[i] = refuse(r, err)
			continue
		}
		valid, places = append(valid, r), append(places, i)
	}
	if len(valid) == 0 {
		return answers
	}
	for n, a := range ask(valid) {
		answers[places[n]] = a
	}
	return answers
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// streams are stdin, stdout and stderr of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// printJSON prints a value as indented JSON.
func (s streams) printJSON(v any) error {
	e := json.NewEncoder(s.out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

package process

import (
	"fmt"

	"github.com/cronclave/cronclave/internal/textfile"
)

// readEnvFile reads an env_file, in the format of [textfile.ParseEnv].
func (f *jobFiles) readEnvFile(path string) (map[string]string, error) {
	text, err := f.readFile(path, textfile.MaxEnvFile)
	if err != nil {
		return nil, fmt.Errorf("env_file: %w", err)
	}
	vars, _, err := textfile.ParseEnv(path, text) // `cronclave check` reports the warnings
	return vars, err                              //nolint:wrapcheck // it names the file
}

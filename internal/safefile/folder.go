package safefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FolderPolicy selects the files of a folder that are accepted. Policy applies to each file.
type FolderPolicy struct {
	Policy
	// MaxFiles is the maximum number of files and folders. MaxDepth is the maximum number of nested folders. MaxTotal is the maximum number of bytes of all
	// files. All are required.
	MaxFiles, MaxDepth int
	MaxTotal           int64
	// Skip lists names that are left out if they are directly in the folder.
	Skip []string
}

// ReadFolder reads all files in a folder and below it. The keys of the result are paths relative to the folder, with slashes. Hidden files are left out.
// Links to files and folders are followed, because Kubernetes mounts both behind links. MaxDepth bounds a loop of links.
func ReadFolder(ctx context.Context, name string, p FolderPolicy) (map[string][]byte, error) {
	if os.Geteuid() != 0 {
		p.Trust = Everybody
	}
	// boundedCall may read in a goroutine that continues after the call was abandoned. So after an error, read must not be used here any more.
	read := &folderReader{policy: p, root: name, files: map[string][]byte{}}
	if _, err := boundedCall(ctx, name, p.As, func() (none struct{}, err error) { return none, read.readFolder(ctx, "", 0) }); err != nil {
		return nil, err
	}
	return read.files, nil
}

type folderReader struct {
	policy FolderPolicy
	root   string
	files  map[string][]byte
	seen   int   // number of files and folders found so far
	bytes  int64 // total length of the files read so far
}

// readFolder reads the folder with a path relative to root.
func (r *folderReader) readFolder(ctx context.Context, name string, depth int) error {
	path := filepath.Join(r.root, filepath.FromSlash(name))
	if depth > r.policy.MaxDepth {
		return readError(path, fmt.Errorf("more than %d folders deep", r.policy.MaxDepth))
	}
	if err := InspectFolder(path, r.policy.Trust); err != nil {
		return err
	}
	entries, err := r.readNames(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry, ".") || name == "" && slices.Contains(r.policy.Skip, entry) {
			continue
		}
		if err := context.Cause(ctx); err != nil { // the caller has abandoned the read
			return readError(path, err)
		}
		if err := r.readEntry(ctx, strings.TrimPrefix(name+"/"+entry, "/"), depth); err != nil {
			return err
		}
	}
	return nil
}

func (r *folderReader) readNames(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the folder
	}
	defer func() { _ = f.Close() }() // a failed Close loses nothing, because f was only read
	names, err := f.Readdirnames(r.policy.MaxFiles - r.seen + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err //nolint:wrapcheck // the error names the folder
	}
	if r.seen += len(names); r.seen > r.policy.MaxFiles {
		return nil, readError(r.root, fmt.Errorf("more than %d files", r.policy.MaxFiles))
	}
	slices.Sort(names)
	return names, nil
}

func (r *folderReader) readEntry(ctx context.Context, name string, depth int) error {
	path := filepath.Join(r.root, filepath.FromSlash(name))
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // the error names the file
	case info.IsDir():
		return r.readFolder(ctx, name, depth+1)
	}
	data, _, err := openAndRead(path, r.policy.Policy, whole)
	if err != nil {
		return err
	}
	if r.bytes += int64(len(data)); r.bytes > r.policy.MaxTotal {
		return readError(r.root, tooLong(r.policy.MaxTotal))
	}
	r.files[name] = data
	return nil
}

package architecture

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cronclave/cronclave/internal/testtier"
)

// figure is one measure of how hard a package is to read, and what it is measured on.
type figure struct {
	count int
	where string
}

// figures are the measures of one package, by the names of [measures].
type figures map[string]figure

// measures are the measures of a package. None of them says that code is good; each has grown wherever code was hard to read.
var measures = []string{
	"cycle",    // files in the largest cycle: each needs all others to be understood
	"fields",   // of the widest struct
	"booleans", // in the struct that has most: states without a name
	"methods",  // of the type that has most, with those of embedded types
	"function", // lines of the longest one
	"exported", // names at the top level, and methods of exported types
}

// raise sets a measure to a greater count.
func (f figures) raise(measure string, count int, where string) {
	if count > f[measure].count {
		f[measure] = figure{count, where}
	}
}

// exports lists the compiled packages that the module needs, by their import paths.
func exports() (map[string]string, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", fmt.Sprintf("-race=%t", testtier.RaceEnabled && runtime.GOOS == "linux"), "./cmd/...", "./internal/...") // the form in which the tests are compiled
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOOS=linux")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	found := map[string]string{}
	for d := json.NewDecoder(out); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found, cmd.Wait()
		} else if err != nil {
			return nil, errors.Join(fmt.Errorf("list packages: %w", err), cmd.Wait())
		}
		found[p.ImportPath] = p.Export
	}
}

// measure takes the figures of a package from its files that are no tests.
func measure(p pkg, compiled map[string]string) (figures, error) {
	set := token.NewFileSet()
	files, err := sources(set, p)
	if err != nil {
		return nil, err
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: importer.ForCompiler(set, "gc", open)}
	checked, err := checker.Check(p.ImportPath, set, files, info)
	if err != nil {
		return nil, fmt.Errorf("measure %s: %w", p.ImportPath, err)
	}
	found := figures{}
	for _, f := range files {
		found.ofFile(set, f)
	}
	found.ofTypes(checked)
	cycle := largestCycle(fileGraph(set, files, checked, info))
	found.raise("cycle", len(cycle), strings.Join(cycle, " "))
	return found, nil
}

// ofFile measures the functions of a file.
func (f figures) ofFile(set *token.FileSet, file *ast.File) {
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			f.raise("function", set.Position(fn.End()).Line-set.Position(fn.Pos()).Line+1, fn.Name.Name)
		}
	}
}

// ofTypes measures the declarations of a package.
func (f figures) ofTypes(checked *types.Package) {
	exported := 0
	for _, name := range checked.Scope().Names() {
		object := checked.Scope().Lookup(name)
		if object.Exported() {
			exported++
		}
		named, ok := object.Type().(*types.Named)
		if _, isType := object.(*types.TypeName); !isType || !ok {
			continue
		}
		f.raise("methods", types.NewMethodSet(types.NewPointer(named)).Len(), name)
		for m := range named.Methods() {
			if object.Exported() && m.Exported() {
				exported++
			}
		}
		if s, ok := named.Underlying().(*types.Struct); ok && (s.NumFields() == 0 || s.Field(0).Pkg() == checked) { // else it is declared elsewhere
			f.raise("fields", s.NumFields(), name)
			f.raise("booleans", booleans(s), name)
		}
	}
	f["exported"] = figure{exported, ""}
}

func booleans(s *types.Struct) (n int) {
	for field := range s.Fields() {
		if b, ok := field.Type().Underlying().(*types.Basic); ok && b.Kind() == types.Bool {
			n++
		}
	}
	return n
}

// graph has, for each file, the files whose declarations it uses.
type graph map[string]map[string]bool

// fileGraph has an edge from each file to the files that declare the functions, types, variables, constants, fields and methods that it uses.
func fileGraph(set *token.FileSet, files []*ast.File, checked *types.Package, info *types.Info) graph {
	in := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	g := graph{}
	for _, f := range files {
		g[in(f.Pos())] = map[string]bool{}
	}
	for ident, object := range info.Uses {
		if object.Pkg() != checked || !object.Pos().IsValid() {
			continue
		}
		if from, to := in(ident.Pos()), in(object.Pos()); from != to {
			g[from][to] = true
		}
	}
	return g
}

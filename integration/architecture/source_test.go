package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// scriptCalls are the methods of go-redis that run Lua.
var scriptCalls = []string{"NewScript", "NewScriptServerSHA", "Eval", "EvalRO", "EvalSha", "EvalShaRO", "ScriptLoad"}

// sourceFaults reads the files of a package that are no tests, and finds the calls that it must not make.
func sourceFaults(p pkg) ([]string, error) {
	set := token.NewFileSet()
	files, err := sources(set, p)
	if err != nil {
		return nil, err
	}
	var faults []string
	for i, name := range p.GoFiles {
		for _, f := range fileFaults(files[i], p.ImportPath, name) {
			at := set.Position(f.at)
			faults = append(faults, fmt.Sprintf("%s/%s:%d: %s", p.ImportPath, name, at.Line, f.message))
		}
	}
	return faults, nil
}

// sources parses the files of a package that are no tests, in the order of p.GoFiles.
func sources(set *token.FileSet, p pkg) (files []*ast.File, err error) {
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read the source of %s: %w", p.ImportPath, err)
		}
		files = append(files, file)
	}
	return files, nil
}

type callFault struct {
	at      token.Pos
	message string
}

// fileFaults inspects every call of a file; exits is true where the file may end the process.
func fileFaults(file *ast.File, importPath, name string) []callFault {
	exits := (within(importPath, module+"/cmd") || within(importPath, module+"/integration/way")) && path.Base(name) == "main.go" || within(importPath, module+"/internal/starter") // a process of its own
	lua := within(importPath, module+"/internal/lease/redis") || within(importPath, module+"/internal/lease/quorum") || within(importPath, module+"/integration/classics")          // published code of other projects
	redis := importsGuest(file, "github.com/redis/go-redis")
	var faults []callFault
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch name := callee(call); {
		case name == "panic":
			faults = append(faults, callFault{call.Pos(), "panic: errors are returned; no panic reaches a user"})
		case !exits && slices.Contains([]string{"os.Exit", "syscall.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln"}, name):
			faults = append(faults, callFault{call.Pos(), name + ": only main.go of a command ends the process, after all clean-up"})
		case !lua && redis && slices.Contains(scriptCalls, name[strings.LastIndex(name, ".")+1:]):
			faults = append(faults, callFault{call.Pos(), name + ": Lua is in internal/lease/redis alone, where its atomicity is argued and tested"})
		}
		return true
	})
	return faults
}

// callee is the called name as written: "panic", "os.Exit", "x.Eval"; only the last part of longer ones.
func callee(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok {
			return x.Name + "." + fun.Sel.Name
		}
		return "." + fun.Sel.Name
	default:
		return ""
	}
}

func importsGuest(file *ast.File, prefix string) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool {
		return within(strings.Trim(spec.Path.Value, `"`), prefix)
	})
}

// luaFaults finds scripts outside of locking, from paths below the repository.
func luaFaults(paths []string) []string {
	var faults []string
	for _, p := range paths {
		if path.Ext(p) == ".lua" && !within(p, "internal/lease/redis") {
			faults = append(faults, p+": Lua is in internal/lease/redis alone, where its atomicity is argued and tested")
		}
	}
	return faults
}

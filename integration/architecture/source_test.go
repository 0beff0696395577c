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
	var faults []string
	for _, name := range p.GoFiles {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read the source of %s: %w", p.ImportPath, err)
		}
		for _, f := range fileFaults(file, p.ImportPath, name) {
			at := files.Position(f.at)
			faults = append(faults, fmt.Sprintf("%s/%s:%d: %s", p.ImportPath, name, at.Line, f.message))
		}
	}
	return faults, nil
}

type callFault struct {
	at      token.Pos
	message string
}

// fileFaults looks at every call of a file; exits tells whether it may end the process.
func fileFaults(file *ast.File, importPath, name string) []callFault {
	exits := within(importPath, module+"/cmd") && path.Base(name) == "main.go"
	lua := within(importPath, module+"/locking") || within(importPath, module+"/integration/classics") // what others have published
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
			faults = append(faults, callFault{call.Pos(), name + ": Lua is in locking alone, where its atomicity is argued and tested"})
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
		if path.Ext(p) == ".lua" && !within(p, "locking") {
			faults = append(faults, p+": Lua is in locking alone, where its atomicity is argued and tested")
		}
	}
	return faults
}

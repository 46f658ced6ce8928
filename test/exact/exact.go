// Package exact holds a package of arithmetic to the rule that gives it the same bits on every machine: no product of
// floats may be fused with an addition. Tests of such packages (domain/merge, domain/vote) call it from their folder.
package exact

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// fusedInstruction is a multiply-add in one rounding, in the assembler's names for amd64.
var fusedInstruction = regexp.MustCompile(`\bVFN?M(ADD|SUB)\w*`)

// disassemble gives the assembly of one package under GOAMD64=v3, the level at which the compiler may fuse.
func disassemble(t *testing.T, pkg string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S", pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOAMD64=v3", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	return string(out)
}

// NoFusedInstruction fails the test when the assembly of the package in the working folder has a multiply-add in one
// rounding. fused is the folder of a package that has one: the check must see it there.
func NoFusedInstruction(t *testing.T, fused string) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles the standard packages for another level of amd64")
	}
	if !fusedInstruction.MatchString(disassemble(t, fused)) {
		t.Fatal("the package that fuses does not: this test cannot see a fused instruction")
	}
	asm := disassemble(t, ".")
	if !strings.Contains(asm, "MULSD") {
		t.Fatal("there is no multiplication at all: this is not the assembly of the package")
	}
	if found := fusedInstruction.FindString(asm); found != "" {
		t.Fatalf("the package has the fused instruction %s", found)
	}
}

// EveryProductIsWrapped fails the test when the source of the package in the working folder has a product of floats
// that does not stand alone in a conversion: the rule that holds on every architecture. fused is a folder with one.
func EveryProductIsWrapped(t *testing.T, fused string) {
	t.Helper()
	if bare := bareProducts(t, fused); len(bare) != 1 {
		t.Fatalf("the rule finds %v in the package with one bare product", bare)
	}
	for _, where := range bareProducts(t, ".") {
		t.Errorf("%s: a product of floats is not wrapped in a conversion", where)
	}
}

// bareProducts lists products of floats that are no constants and not the whole argument of a conversion.
func bareProducts(t *testing.T, dir string) (where []string) {
	t.Helper()
	c := checker{fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	c.std = importer.ForCompiler(c.fset, "source", nil)
	files, _, err := c.check(dir, c.info)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := map[ast.Expr]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.CallExpr:
				if c.info.Types[x.Fun].IsType() && len(x.Args) == 1 {
					wrapped[x.Args[0]] = true
				}
			case *ast.AssignStmt:
				if x.Tok == token.MUL_ASSIGN && c.isFloat(x.Lhs[0]) {
					where = append(where, c.fset.Position(x.Pos()).String())
				}
			case *ast.BinaryExpr:
				if x.Op == token.MUL && c.info.Types[x].Value == nil && c.isFloat(x) && !wrapped[x] {
					where = append(where, c.fset.Position(x.Pos()).String())
				}
			}
			return true
		})
	}
	return where
}

// checker finds the types of a package of the domain. It reads math and our own packages; others stay empty, which is quick, and
// what comes from them has no type.
type checker struct {
	fset *token.FileSet
	info *types.Info
	std  types.Importer
}

// check parses and checks one folder without its tests.
func (c checker) check(dir string, info *types.Info) ([]*ast.File, *types.Package, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			f, err := parser.ParseFile(c.fset, dir+"/"+e.Name(), nil, 0)
			if err != nil {
				return nil, nil, err
			}
			files = append(files, f)
		}
	}
	conf := types.Config{Importer: c, Error: func(error) {}} // what the empty packages lack
	pkg, _ := conf.Check(dir, c.fset, files, info)
	return files, pkg, nil
}

// Import is for types.Importer.
func (c checker) Import(path string) (*types.Package, error) {
	if path == "math" {
		return c.std.Import(path)
	}
	if ours, ok := strings.CutPrefix(path, "tensorturn/domain"); ok {
		_, pkg, err := c.check(".."+ours, nil)
		return pkg, err
	}
	p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	p.MarkComplete()
	return p, nil
}

// isFloat is true for what has no type, too: better one false alarm than a product that is not seen.
func (c checker) isFloat(x ast.Expr) bool {
	typ := c.info.Types[x].Type
	if typ == nil {
		return true
	}
	b, ok := typ.Underlying().(*types.Basic)
	return ok && (b.Info()&types.IsFloat != 0 || b.Kind() == types.Invalid)
}

package vote

import (
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"tensorturn/test/exact"
)

const fused = "../merge/testdata/fused"

func TestNoFusedInstruction(t *testing.T)    { exact.NoFusedInstruction(t, fused) }
func TestEveryProductIsWrapped(t *testing.T) { exact.EveryProductIsWrapped(t, fused) }

// TestOnlyExactMath holds that of package math nothing is used whose bits depend on the machine: math.Exp and math.Log
// are assembly on some, with fused instructions.
func TestOnlyExactMath(t *testing.T) {
	allowed := map[string]bool{"Floor": true, "Sqrt": true, "Abs": true, "Inf": true, "IsNaN": true, "IsInf": true, "Sqrt2": true, "Float64bits": true,
		"Float64frombits": true, "Float32bits": true, "Float32frombits": true}
	used := usesOf(t, ".", "math")
	if len(used) == 0 {
		t.Fatal("nothing of math is found: this test cannot fail")
	}
	for name, where := range used {
		if !allowed[name] {
			t.Errorf("%s: math.%s is not known to give the same bits everywhere", where, name)
		}
	}
}

// usesOf lists what the package's source takes from an imported package, each with one place.
func usesOf(t *testing.T, dir, pkg string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	used := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range f.Unresolved {
			if id.Name == pkg {
				raw, _ := os.ReadFile(e.Name())
				rest := string(raw[fset.Position(id.End()).Offset+1:])
				name := rest[:strings.IndexFunc(rest, func(r rune) bool { return !(r >= 'A' && r <= 'z' || r >= '0' && r <= '9') })]
				used[name] = fset.Position(id.Pos()).String()
			}
		}
	}
	return used
}

package kit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Main builds the program once into a folder of its own, tells where through binary, and runs the tests of a package two
// folders below the root. It gives the exit code for TestMain.
func Main(m *testing.M, binary *string) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "tensorturn-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		*binary, err = Build(filepath.Join("..", ".."), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

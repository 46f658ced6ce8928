package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the command into dir and gives the binary's path. root is the repository's root. It is built as make
// builds it, without the race detector: the processes shall run at their real speed. flags are further ones of go build.
func Build(root, dir string, flags ...string) (string, error) {
	bin := filepath.Join(dir, "tensorturn")
	args := append([]string{"build", "-trimpath", "-o", bin}, flags...)
	c := exec.Command("go", append(args, "./cmd/tensorturn")...)
	c.Dir = root
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return bin, nil
}

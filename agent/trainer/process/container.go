package process

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// container is a running container. Its processes are the engine's children, not ours: neither our group nor our death
// ends them.
type container struct{ engine, name string }

// removeTime is how long an engine may take to remove a container.
const removeTime = 20 * time.Second

// remove ends the container; it is no error that it has ended by itself.
func (c *container) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	_ = exec.CommandContext(ctx, c.engine, "rm", "--force", c.name).Run()
}

// containersFile lists the containers that were started and not yet removed, so that the next agent finds those of one that
// was killed. A line is the engine's path, a blank, and the name.
func (o *Opener) containersFile() string { return filepath.Join(o.opts.Root, "containers") }

// noteContainer adds a container to the list.
func (o *Opener) noteContainer(c *container) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.containers[*c] = true
	return o.writeContainers()
}

// dropContainer removes a container and takes it off the list.
func (o *Opener) dropContainer(c *container) {
	c.remove()
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.containers, *c)
	_ = o.writeContainers() // a line too many costs one command at the next start
}

func (o *Opener) writeContainers() error {
	var b strings.Builder
	for c := range o.containers {
		b.WriteString(c.engine + " " + c.name + "\n")
	}
	return os.WriteFile(o.containersFile(), []byte(b.String()), 0o600)
}

// sweepContainers removes what a former agent left.
func (o *Opener) sweepContainers() {
	f, err := os.Open(o.containersFile())
	if err != nil {
		return // there never was one
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at > 0 && strings.HasPrefix(lines.Text()[at+1:], "tensorturn-") {
			(&container{engine: lines.Text()[:at], name: lines.Text()[at+1:]}).remove()
		}
	}
	_ = os.RemoveAll(o.containersFile())
}

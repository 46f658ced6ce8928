package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tensorturn/broker/snapshot"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
)

// viewFollower feeds the views and lets them begin from a snapshot.
type viewFollower struct{ h *hubProcess }

// Note gives events to the views. A view that missed one would lie for ever: the hub ends.
func (f viewFollower) Note(es []event.Envelope) {
	if err := f.h.views.Engine.Apply(es...); err != nil {
		f.h.fail(err)
	}
}

// Parts names what the views hold.
func (f viewFollower) Parts() []freeze.Part { return f.h.views.Engine.Parts() }

// Resume goes on behind seq.
func (f viewFollower) Resume(seq uint64) { f.h.views.Engine.Resume(seq) }

// openSnapshots prepares the folder of frozen state, beside the store.
func (h *hubProcess) openSnapshots(context.Context) (err error) {
	h.snapshots, err = snapshot.Open(filepath.Join(h.opts.dir, "snapshots"), h.keys.Snapshots())
	return err
}

// programID tells builds apart whose rules may differ: a snapshot is for the build that wrote it. One that was not made from a
// clean checkout is told by its file.
func programID() string {
	b := thisBuild()
	id := strings.Join([]string{b.Version, b.Revision, b.Go, b.Platform}, " ")
	if b.Revision != "" && !b.Modified {
		return id
	}
	if path, err := os.Executable(); err == nil {
		if f, err := os.Stat(path); err == nil {
			id += fmt.Sprintf(" %d %d", f.Size(), f.ModTime().UnixNano())
		}
	}
	return id
}

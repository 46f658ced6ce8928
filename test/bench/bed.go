package main

import (
	"io"

	"tensorturn/test/kit"
)

// bed is the testing.TB of one section.
type bed = kit.Bed

// inBed runs a section and gives what went wrong first.
func inBed(talk io.Writer, f func(*bed)) error { return kit.InBed(talk, f) }

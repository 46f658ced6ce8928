package kit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
)

// Bed is the testing.TB of one section, so that this package can be used outside of a test. Fatal ends the section. Only
// the goroutine that runs the section may call Fatal.
type Bed struct {
	testing.TB // nil: kit calls nothing but what is here
	talk       io.Writer
	cleanups   []func()
	failed     error
}

// stopped is what Fatal panics with.
type stopped struct{}

// InBed runs f with a bed, cleans up, and gives what went wrong first.
func InBed(talk io.Writer, f func(*Bed)) error {
	d := &Bed{talk: talk}
	func() {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(stopped); !ok {
					panic(p)
				}
			}
		}()
		defer d.clean()
		f(d)
	}()
	return d.failed
}

func (d *Bed) clean() {
	for len(d.cleanups) > 0 {
		last := len(d.cleanups) - 1
		f := d.cleanups[last]
		d.cleanups = slices.Delete(d.cleanups, last, last+1)
		f()
	}
}

func (d *Bed) Helper()                    {}
func (d *Bed) Failed() bool               { return d.failed != nil }
func (d *Bed) Cleanup(f func())           { d.cleanups = append(d.cleanups, f) }
func (d *Bed) Logf(f string, args ...any) { fmt.Fprintf(d.talk, f+"\n", args...) }

// Errorf notes a failure and goes on.
func (d *Bed) Errorf(f string, args ...any) {
	if d.failed == nil {
		d.failed = fmt.Errorf(f, args...)
	}
}

// Fatalf notes a failure and ends the section.
func (d *Bed) Fatalf(f string, args ...any) {
	d.Errorf(f, args...)
	panic(stopped{})
}

// Fatal is Fatalf without a format.
func (d *Bed) Fatal(args ...any) {
	if d.failed == nil {
		d.failed = errors.New(fmt.Sprint(args...))
	}
	panic(stopped{})
}

// Must ends the section on an error.
func (d *Bed) Must(err error) {
	if err != nil {
		d.Fatal(err)
	}
}

// TempDir gives a folder that goes with the section.
func (d *Bed) TempDir() string {
	dir, err := os.MkdirTemp("", "tensorturn-bed-")
	d.Must(err)
	d.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

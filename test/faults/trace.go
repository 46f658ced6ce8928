package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// call is a finished system call of the hub that changes files, as strace wrote it down.
type call struct {
	began, ended float64 // seconds; an unfinished one that never ended has ended 0
	name         string
	args         string
	result       int64
}

// traced are the calls that change what is on a disk, or where later ones go.
const traced = "openat,close,write,pwrite64,pwritev,writev,lseek,fsync,fdatasync,ftruncate,truncate,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,dup,dup2,dup3,fallocate,copy_file_range,sendfile"

var (
	lineForm    = regexp.MustCompile(`^(\d+) +(\d+\.\d+) (.*)$`)
	callForm    = regexp.MustCompile(`^(\w+)\((.*)\) += (-?\d+|\?)`)
	pendingForm = regexp.MustCompile(`^(\w+)\((.*) <unfinished \.\.\.>$`)
	resumeForm  = regexp.MustCompile(`^<\.\.\. (\w+) resumed>(.*)\) += (-?\d+|\?)`)
)

// readTrace reads what strace -f -ttt -xx has written, in the order in which the calls ended.
func readTrace(in io.Reader) ([]call, error) {
	var out []call
	pending := map[string]call{}
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return out, nil // the last line of a killed process may be cut
		}
		m := lineForm.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		at, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		switch body := m[3]; {
		case strings.HasPrefix(body, "<... "):
			r := resumeForm.FindStringSubmatch(body)
			c, ok := pending[m[1]]
			if r == nil || !ok || c.name != r[1] {
				continue
			}
			delete(pending, m[1])
			c.args += r[2]
			c.ended = at
			c.result = number(r[3])
			out = append(out, c)
		case strings.HasSuffix(body, "<unfinished ...>"):
			if p := pendingForm.FindStringSubmatch(body); p != nil {
				pending[m[1]] = call{began: at, name: p[1], args: p[2]}
			}
		default:
			if c := callForm.FindStringSubmatch(body); c != nil {
				out = append(out, call{began: at, ended: at, name: c[1], args: c[2], result: number(c[3])})
			}
		}
	}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// fields cuts the arguments at their commas; strings are in quotes and hexadecimal, so that no comma is in one.
func (c call) fields() []string {
	parts := strings.Split(c.args, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// text decodes a string argument: "\x2f\x74..."; a cut one is an error, since bytes would be missing.
func text(arg string) (string, error) {
	if strings.HasSuffix(arg, "...") {
		return "", fmt.Errorf("a string of the trace is cut")
	}
	arg = strings.Trim(arg, `"`)
	var b strings.Builder
	b.Grow(len(arg) / 4)
	for i := 0; i+3 < len(arg); i += 4 {
		n, err := strconv.ParseUint(arg[i+2:i+4], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%q is no string of the trace", clip(arg, 40))
		}
		b.WriteByte(byte(n))
	}
	return b.String(), nil
}

func openTrace(path string) ([]call, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readTrace(f)
}

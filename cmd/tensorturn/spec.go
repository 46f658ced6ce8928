package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// maxSpecBytes bounds a spec file: a page of settings, not data.
const maxSpecBytes = 256 << 10

// loadSpec reads a run's specification. Unknown keys are errors that name the key, its line and the nearest known one.
// Relative paths of data and code are taken from the folder of the spec.
func loadSpec(path string) (run.Spec, error) {
	if kind := strings.ToLower(filepath.Ext(path)); kind == ".csv" || kind == ".gz" {
		return run.Spec{}, domain.Invalid("read spec "+path, "it is named as data are, and a run is submitted by a specification",
			"write a file spec.yaml with the line `data: {path: "+path+"}`, and submit that")
	}
	f, err := os.Open(path)
	if err != nil {
		return run.Spec{}, domain.NotFound("read spec", plainPathError(err), "give the path of a YAML file, for example examples/digits.yaml")
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return run.Spec{}, domain.Invalid("read spec "+path, "it is a folder, and a run is submitted by a specification", "give the YAML file in it, for example "+filepath.Join(path, "spec.yaml"))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSpecBytes+1))
	if err != nil {
		return run.Spec{}, domain.Invalid("read spec "+path, err.Error(), "")
	}
	if len(b) > maxSpecBytes {
		return run.Spec{}, domain.Invalid("read spec "+path, fmt.Sprintf("it is larger than %d bytes", maxSpecBytes), "a spec holds settings; data goes into data.path")
	}
	spec, err := parseSpec(path, b)
	if err == nil && spec.Data.Path != "" && !filepath.IsAbs(spec.Data.Path) {
		spec.Data.Path = filepath.Join(filepath.Dir(path), spec.Data.Path)
	}
	if err == nil && spec.Data.Labels != "" && !filepath.IsAbs(spec.Data.Labels) {
		spec.Data.Labels = filepath.Join(filepath.Dir(path), spec.Data.Labels)
	}
	if err == nil && spec.Trainer == run.Process && !filepath.IsAbs(spec.Code) {
		spec.Code = filepath.Join(filepath.Dir(path), spec.Code)
	}
	return spec, err
}

func parseSpec(name string, b []byte) (run.Spec, error) {
	op := "read spec " + name
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		if line := tabbed(b); line > 0 {
			return run.Spec{}, domain.Invalid(op, fmt.Sprintf("line %d: a tab stands before its first word, and YAML takes none there", line), "write spaces instead")
		}
		return run.Spec{}, domain.Invalid(op, strings.TrimPrefix(err.Error(), "yaml: "), "check indentation and colons")
	}
	if doc.Kind == 0 || len(doc.Content) == 0 {
		return run.Spec{}, domain.Invalid(op, "it is empty", "begin with: data: {path: FILE.csv}")
	}
	if err := knownKeys(op, "", doc.Content[0], reflect.TypeFor[run.Spec]()); err != nil {
		return run.Spec{}, err
	}
	var spec run.Spec
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&spec); err != nil {
		var te *yaml.TypeError
		why := err.Error()
		if errors.As(err, &te) && len(te.Errors) > 0 {
			why = te.Errors[0]
		}
		return run.Spec{}, domain.Invalid(op, why, "see the table of fields in the README")
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return run.Spec{}, domain.Invalid(op, "it holds more than one document", "keep one run in one file")
	}
	return spec, noZeros(op, "", doc.Content[0], spec.Trainer)
}

// tabbed is the first line that is indented with a tab, 0 for none.
func tabbed(b []byte) (line int) {
	for text := range bytes.Lines(b) {
		line++
		if indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]; bytes.ContainsRune(indent, '\t') && len(bytes.TrimSpace(text)) > 0 {
			return line
		}
	}
	return 0
}

// knownKeys walks the document beside the type and stops at the first key that the type does not have, or whose value is
// of another kind.
func knownKeys(op, at string, n *yaml.Node, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return rightKind(op, at, n, t)
	}
	if n.Kind != yaml.MappingNode {
		return domain.Invalid(op, fmt.Sprintf("line %d: %s must be a mapping", n.Line, cmpOr(at, "the document")), "write it as key: value lines")
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		fields[tag] = t.Field(i).Type
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		path := strings.TrimPrefix(at+"."+key.Value, ".")
		ft, ok := fields[key.Value]
		if !ok {
			return domain.Invalid(op, fmt.Sprintf("line %d: unknown key %q", key.Line, domain.Clip(path, 80)), meant(key.Value, fields))
		}
		if seen[key.Value] {
			return domain.Invalid(op, fmt.Sprintf("line %d: key %q stands twice", key.Line, path), "keep one of them")
		}
		seen[key.Value] = true
		if err := knownKeys(op, path, n.Content[i+1], ft); err != nil {
			return err
		}
	}
	return nil
}

// rightKind refuses a value that is not of the field's type, and names the key, the value and what is wanted.
func rightKind(op, path string, n *yaml.Node, t reflect.Type) error {
	if f := fraction(n, t); f != nil {
		return domain.Invalid(op, fmt.Sprintf("line %d: %s is %s, which is no whole number", f.Line, path, domain.Clip(f.Value, 40)), "set "+path+" to "+wanted(t))
	}
	if n.Decode(reflect.New(t).Interface()) == nil {
		return nil
	}
	value := domain.Clip(fmt.Sprintf("%q", n.Value), 40)
	switch n.Kind {
	case yaml.MappingNode:
		value = "a mapping"
	case yaml.SequenceNode:
		value = "a list"
		for _, e := range n.Content {
			if t.Kind() == reflect.Slice && e.Decode(reflect.New(t.Elem()).Interface()) != nil {
				value = "a list with " + domain.Clip(fmt.Sprintf("%q", e.Value), 40)
				break
			}
		}
	}
	return domain.Invalid(op, fmt.Sprintf("line %d: %s is %s, which is not %s", n.Line, path, value, wanted(t)), "set "+path+" to "+wanted(t))
}

// wanted names a type for people.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Uint64:
		return "a whole number from 0"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Int {
			return "a list of whole numbers"
		}
		return "a list of words"
	case reflect.Map:
		return "a mapping of words"
	}
	return "a text"
}

// foreignKeys are settings by names that other programs give them.
var foreignKeys = map[string]string{
	"learning_rate": "optimizer.lr", "lr": "optimizer.lr", "weight_decay": "optimizer.weight_decay", "batch_size": "batch",
	"num_epochs": "epochs", "target": "data.label", "dataset": "data.path", "val_split": "data.holdout", "layers": "model.layers",
}

// meant says what an unknown key may have meant.
func meant(key string, fields map[string]reflect.Type) string {
	key = domain.Clip(key, 80)
	if known, ok := foreignKeys[key]; ok && fields[key] == nil {
		return "it is called " + known + " here"
	}
	if near := nearest(key, fields); levenshtein.ComputeDistance(key, near) <= max(2, len(key)/3) {
		return "did you mean " + near + "?"
	}
	return "the keys here are " + strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// nearest is the known key with the smallest edit distance, the first in alphabetical order of equals.
func nearest(key string, fields map[string]reflect.Type) string {
	best, dist := "", 1<<30
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if d := levenshtein.ComputeDistance(domain.Clip(key, 80), name); d < dist {
			best, dist = name, d
		}
	}
	return best
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// plainPathError is "PATH: reason" without the name of the system call.
func plainPathError(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

package feed

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Breaking lists what a reader of the old schemas could stumble over in the new ones, by CloudEvents type: a type or field
// that is gone, a field that may be missing now or holds something else. New types and new fields break nobody.
func Breaking(old, now map[string]Schema) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(old)) {
		s, ok := now[name]
		if !ok {
			out = append(out, name+" is gone")
			continue
		}
		out = append(out, breaking(name, old[name], s)...)
	}
	return out
}

func breaking(at string, old, now Schema) []string {
	var out []string
	for _, key := range []string{"type", "const", "pattern", "format", "contentEncoding", "minimum"} {
		if !reflect.DeepEqual(plain(old[key]), plain(now[key])) {
			out = append(out, fmt.Sprintf("%s: %s was %v and is %v", at, key, old[key], now[key]))
		}
	}
	properties, _ := old["properties"].(Schema)
	fresh, _ := now["properties"].(Schema)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		f, ok := fresh[name].(Schema)
		if !ok {
			out = append(out, at+"."+name+" is gone")
			continue
		}
		out = append(out, breaking(at+"."+name, properties[name].(Schema), f)...)
	}
	for _, name := range list(old["required"]) {
		if !slices.Contains(list(now["required"]), name) {
			out = append(out, fmt.Sprintf("%s.%v was always there and may be missing", at, name))
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		out = append(out, inside(at+"[]", old[key], now[key])...)
	}
	was, is := list(old["anyOf"]), list(now["anyOf"])
	if len(was) != len(is) {
		return append(out, at+" has other alternatives")
	}
	for i := range was {
		out = append(out, inside(at, was[i], is[i])...)
	}
	return out
}

func inside(at string, old, now any) []string {
	a, wasSchema := old.(Schema)
	b, isSchema := now.(Schema)
	switch {
	case wasSchema && isSchema:
		return breaking(at, a, b)
	case wasSchema != isSchema:
		return []string{at + " holds something else"}
	}
	return nil
}

func list(v any) []any { l, _ := v.([]any); return l }

// plain makes numbers comparable that were read from a file with those that were written in Go.
func plain(v any) any {
	if n, ok := v.(int); ok {
		return float64(n)
	}
	return v
}

package main

import (
	"fmt"
	"reflect"
	"strings"

	"tensorturn/domain/run"
)

// settings lists every field of a resolved spec by its YAML name, so that no default is in force unseen.
func settings(s run.Spec) [][]string {
	var rows [][]string
	walkSettings("", reflect.ValueOf(s), func(name, value string) { rows = append(rows, []string{name, value}) })
	return rows
}

func walkSettings(at string, v reflect.Value, emit func(name, value string)) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			emit(at, "-")
			return
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		emit(at, fmt.Sprint(v.Interface()))
		return
	}
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		walkSettings(strings.TrimPrefix(at+"."+tag, "."), v.Field(i), emit)
	}
}

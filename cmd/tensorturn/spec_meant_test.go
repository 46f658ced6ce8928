package main

import (
	"reflect"
	"testing"
)

// What is near is guessed, what other programs call otherwise is translated, and nothing far-fetched is offered.
func TestMeant(t *testing.T) {
	fields := map[string]reflect.Type{"batch": nil, "priority": nil, "epochs": nil}
	for key, want := range map[string]string{
		"bach": "did you mean batch?", "learning_rate": "it is called optimizer.lr here", "zoo": "the keys here are batch, epochs, priority", "epoch": "did you mean epochs?",
	} {
		if got := meant(key, fields); got != want {
			t.Errorf("%s: %s", key, got)
		}
	}
}

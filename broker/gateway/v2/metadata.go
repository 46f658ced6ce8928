package v2

import (
	"encoding/json"
	"net/http"
	"strconv"

	"tensorturn/broker/inference"
)

// The names of tensors: one in, two out.
const (
	inputName = "input"         // FP32 [-1, features]: rows as they stand in the table
	probsName = "probabilities" // FP32 [-1, classes]
	labelName = "label"         // BYTES [-1]: the class that is named
)

// binaryExtension is the name of the binary tensor extension.
const binaryExtension = "binary_tensor_data"

func answer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b)
}

func (a *API) live(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]bool{"live": true})
}

// ready says both words: the specification's text has "live" here, servers have "ready".
func (a *API) ready(w http.ResponseWriter, _ *http.Request) {
	if err := a.cfg.Ready(); err != nil {
		refuseUntil(w, http.StatusServiceUnavailable, err.Error(), retryAfter)
		return
	}
	answer(w, map[string]bool{"live": true, "ready": true})
}

func (a *API) server(w http.ResponseWriter, r *http.Request) {
	if _, ok := a.caller(w, r); ok {
		answer(w, serverMetadata{"tensorturn", a.cfg.Server, []string{binaryExtension}})
	}
}

type serverMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

type modelMetadata struct {
	Name     string           `json:"name"`
	Versions []string         `json:"versions"`
	Platform string           `json:"platform"`
	Inputs   []tensorMetadata `json:"inputs"`
	Outputs  []tensorMetadata `json:"outputs"`
}

type tensorMetadata struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
}

func (a *API) metadata(w http.ResponseWriter, r *http.Request, name, version string) {
	t, ok := a.target(w, r, name, version, false)
	if !ok {
		return
	}
	f, fail := a.describe(r, t)
	if fail != nil {
		fail.write(w)
		return
	}
	m := modelMetadata{Name: name, Platform: "tensorturn_" + t.version.Kind,
		Inputs:  []tensorMetadata{{inputName, "FP32", []int{-1, len(f.Columns)}}},
		Outputs: []tensorMetadata{{probsName, "FP32", []int{-1, len(f.Classes)}}, {labelName, "BYTES", []int{-1}}}}
	for _, v := range t.model.Versions {
		m.Versions = append(m.Versions, strconv.Itoa(v.Version))
	}
	answer(w, m)
}

func (a *API) modelReady(w http.ResponseWriter, r *http.Request, name, version string) {
	t, ok := a.target(w, r, name, version, false)
	if !ok {
		return
	}
	if _, fail := a.describe(r, t); fail != nil {
		fail.write(w)
		return
	}
	answer(w, struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
	}{name, true})
}

// describe makes the version ready to answer.
func (a *API) describe(r *http.Request, t target) (f inference.Facts, failed *fail) {
	m, b, failed := a.backend(t)
	if failed != nil {
		return f, failed
	}
	f, err := b.Describe(r.Context(), m.version)
	if err != nil {
		return f, a.failOf(err)
	}
	m.facts.Store(&f)
	return f, nil
}

// backend finds who answers for a version.
func (a *API) backend(t target) (*made, inference.Backend, *fail) {
	m, err := a.made.get(t, a.cfg.Version)
	if err != nil {
		return nil, nil, a.failOf(err)
	}
	b := a.cfg.Backend(t.version.Where)
	if b == nil {
		return nil, nil, &fail{http.StatusServiceUnavailable, "nobody answers for models on the " + string(t.version.Where), 5 * retryAfter}
	}
	return m, b, nil
}

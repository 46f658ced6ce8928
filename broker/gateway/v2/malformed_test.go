package v2_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v2 "tensorturn/broker/gateway/v2"
)

// Requests that are wrong, each in its own way. Every one gets a refusal of the protocol's form that names what is wrong, and
// the server answers the next good one.
func TestMalformed(t *testing.T) {
	w := newWorld(t)
	const (
		head = `{"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32",`
		good = head + `"data":[1,2,3]}]}`
	)
	shape := func(s string) string {
		return `{"inputs":[{"name":"input","shape":` + s + `,"datatype":"FP32","data":[1,2,3]}]}`
	}
	data := func(s string) string { return head + `"data":` + s + `}]}` }
	cases := []struct {
		what, body string
		code       int
		text       string
		headers    []string
	}{
		{"nothing", "", 400, "not a JSON object", nil},
		{"no JSON", "hello", 400, "not a JSON object", nil},
		{"a list", "[1]", 400, "not a JSON object", nil},
		{"half", good[:40], 400, "missing", nil},
		{"two", good + good, 400, "follows the object", nil},
		{"a comma too much", strings.Replace(good, "}]}", "},]}", 1), 400, "missing", nil},
		{"a name without quotes", `{inputs:[]}`, 400, "a text is missing", nil},
		{"no inputs", `{"id":"1"}`, 400, "inputs are missing", nil},
		{"an empty list of inputs", `{"inputs":[]}`, 400, "one input", nil},
		{"inputs that are no list", `{"inputs":{}}`, 400, "missing", nil},
		{"inputs twice", `{"inputs":[],"inputs":[]}`, 400, `"inputs" comes twice`, nil},
		{"two inputs", strings.Replace(good, "}]}", `},{"name":"b","shape":[1],"datatype":"FP32","data":[1]}]}`, 1), 400, "the request has 2", nil},
		{"nine inputs", `{"inputs":[` + strings.TrimSuffix(strings.Repeat(`{"name":"b","shape":[1],"datatype":"FP32","data":[1]},`, 9), ",") + `]}`, 400, "more than 8", nil},
		{"another input", strings.Replace(good, `"input"`, `"image"`, 1), 400, `the request has "image"`, nil},
		{"no name", strings.Replace(good, `"name":"input",`, "", 1), 400, "no name", nil},
		{"a name that is a number", strings.Replace(good, `"input"`, "7", 1), 400, "a text is missing", nil},
		{"a long name", strings.Replace(good, `"input"`, `"`+strings.Repeat("x", 200)+`"`, 1), 400, "longer than 128", nil},
		{"no shape", strings.Replace(good, `"shape":[1,3],`, "", 1), 400, "no shape", nil},
		{"no datatype", strings.Replace(good, `"datatype":"FP32",`, "", 1), 400, "no datatype", nil},
		{"no data", `{"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32"}]}`, 400, "no data", nil},
		{"data and bytes", head + `"data":[1,2,3],"parameters":{"binary_data_size":12}}]}`, 400, "data and binary_data_size", nil},
		{"another width", shape("[1,4]"), 400, "the model takes [-1 3]", nil},
		{"no dimension", shape("[]"), 400, "the model takes", nil},
		{"three dimensions", shape("[1,1,3]"), 400, "the model takes", nil},
		{"nine dimensions", shape("[1,1,1,1,1,1,1,1,3]"), 400, "more than 8", nil},
		{"a negative dimension", shape("[-1,3]"), 400, "no integer from 0", nil},
		{"half a dimension", shape("[1.5,3]"), 400, "no integer from 0", nil},
		{"no rows", shape("[0,3]"), 400, "the model takes", nil},
		{"a product that overflows", shape("[6148914691236517206,3]"), 413, "at most 4096", nil},
		{"a dimension beyond 64 bits", shape("[99999999999999999999,3]"), 400, "no integer from 0", nil},
		{"rows that are not there", shape("[4096,3]"), 400, "fewer than the 12288 values", nil},
		{"too many rows", shape("[4097,3]"), 413, "at most 4096", nil},
		{"too few values", data("[1,2]"), 400, "fewer than the 3 values", nil},
		{"too few values in spaces", data("[1,2      ]"), 400, "has 2 values", nil},
		{"too many values", data("[1,2,3,4]"), 400, "more than the 3 values", nil},
		{"ragged lists", `{"inputs":[{"name":"input","shape":[2,3],"datatype":"FP32","data":[[1,2],[3,4,5,6]]}]}`, 400, "nested otherwise", nil},
		{"lists too deep", data("[[[1,2,3]]]"), 400, "is no number", nil},
		{"a flat value among lists", `{"inputs":[{"name":"input","shape":[2,3],"datatype":"FP32","data":[[1,2,3],4,5,6]}]}`, 400, "nested otherwise", nil},
		{"text for numbers", data(`["1","2","3"]`), 400, "value 0 is no number", nil},
		{"null for a number", data(`[1,null,3]`), 400, "value 1 is no number", nil},
		{"NaN", data(`[1,NaN,3]`), 400, "malformed", nil},
		{"a leading zero", data(`[01,2,3]`), 400, "malformed", nil},
		{"a plus", data(`[+1,2,3]`), 400, "malformed", nil},
		{"half an exponent", data(`[1e,2,3]`), 400, "malformed", nil},
		{"data that are no list", data(`7`), 400, "data is no list", nil},
		{"nested without end", `{"x":` + strings.Repeat("[", 100000), 400, "nested deeper", nil},
		{"objects nested without end", `{"x":` + strings.Repeat(`{"a":`, 100000), 400, "nested deeper", nil},
		{"an id that is a number", `{"id":7,` + good[1:], 400, "a text is missing", nil},
		{"an id with a control character", `{"id":"a\u0007",` + good[1:], 400, "control character", nil},
		{"a raw control character", "{\"id\":\"a\x01\"," + good[1:], 400, "control character", nil},
		{"a long id", `{"id":"` + strings.Repeat("x", 257) + `",` + good[1:], 400, "longer than 256", nil},
		{"a wrong escape", `{"id":"\q",` + good[1:], 400, "wrong escape", nil},
		{"half an escape", `{"id":"\u00`, 400, "wrong escape", nil},
		{"an id that is not UTF-8", "{\"id\":\"\xff\"," + good[1:], 400, "not UTF-8", nil},
		{"an output nobody has", `{"outputs":[{"name":"logits"}],` + good[1:], 400, `no output "logits"`, nil},
		{"an output twice", `{"outputs":[{"name":"label"},{"name":"label"}],` + good[1:], 400, "twice", nil},
		{"an output without name", `{"outputs":[{}],` + good[1:], 400, "an output has no name", nil},
		{"classification", `{"outputs":[{"name":"label","parameters":{"classification":3}}],` + good[1:], 400, "classification", nil},
		{"parameters that are no object", `{"parameters":[],` + good[1:], 400, "missing", nil},
		{"a parameter of another type", `{"parameters":{"binary_data_output":"yes"},` + good[1:], 400, "neither true nor false", nil},
		{"a size below zero", head + `"parameters":{"binary_data_size":-1}}]}`, 400, "no integer from 0", nil},
		{"bytes that are not there", head + `"parameters":{"binary_data_size":12}}]}`, 400, "0 bytes follow", nil},
		{"bytes nobody asked for", good + "xyz", 400, "3 bytes follow", []string{"Inference-Header-Content-Length", fmt.Sprint(len(good))}},
		{"a size that is no whole tensor", head + `"parameters":{"binary_data_size":3}}]}xyz`, 400, "3 bytes instead of 12", []string{"Inference-Header-Content-Length", fmt.Sprint(len(head) + 38)}},
		{"a header length beyond the body", good, 400, "Inference-Header-Content-Length", []string{"Inference-Header-Content-Length", "9999"}},
		{"a header length below zero", good, 400, "Inference-Header-Content-Length", []string{"Inference-Header-Content-Length", "-1"}},
		{"a header length that is no number", good, 400, "Inference-Header-Content-Length", []string{"Inference-Header-Content-Length", "x"}},
		{"a compressed body", good, 415, "gzip", []string{"Content-Encoding", "gzip"}},
	}
	if len(cases) < 40 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		w.infer(c.body, c.headers...).refused(t, c.code, c.text)
		if t.Failed() {
			t.Fatalf("%s", c.what)
		}
		if a := w.infer(good); a.code != 200 {
			t.Fatalf("after %s a good request gets %d %s", c.what, a.code, a.body)
		}
	}
	if w.backend.asked != len(cases) {
		t.Errorf("the model was asked %d times, for %d good requests", w.backend.asked, len(cases))
	}
}

// A body beyond the limit is refused, whether it says its size or not; one at the limit is read.
func TestBodyLimit(t *testing.T) {
	w := newWorld(t)
	const row = `{"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`
	atLimit := row + strings.Repeat(" ", v2.MaxBody-len(row))
	if a := w.infer(atLimit); a.code != 200 {
		t.Errorf("at the limit: %d %s", a.code, a.body)
	}
	for _, chunked := range []bool{false, true} {
		for _, c := range []struct {
			body string
			code int
		}{{atLimit, 200}, {atLimit + " ", 413}} {
			var body interface {
				Read([]byte) (int, error)
			} = strings.NewReader(c.body)
			if chunked {
				body = struct{ *strings.Reader }{strings.NewReader(c.body)}
			}
			req, err := http.NewRequest("POST", w.server.URL+"/v2/models/digits/infer", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+digitsKey)
			resp, err := w.server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var m map[string]any
			if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || resp.StatusCode != c.code || c.code == 413 != (m["error"] != nil) {
				t.Errorf("chunked %v: %d %v %v, want %d", chunked, resp.StatusCode, m, err, c.code)
			}
			resp.Body.Close()
		}
	}
}

// Rows at the limit are answered, and so is everything else at its limit.
func TestMostRows(t *testing.T) {
	w := newWorld(t)
	body := fmt.Sprintf(`{"inputs":[{"name":"input","shape":[%d,3],"datatype":"FP32","data":[%s]}]}`, v2.MaxRows, strings.TrimSuffix(strings.Repeat("1,0,0,", v2.MaxRows), ","))
	d := w.infer(body).decode(t)
	if len(d.Outputs[1].Data) != v2.MaxRows || d.Outputs[1].Data[v2.MaxRows-1] != "one" {
		t.Errorf("%d labels", len(d.Outputs[1].Data))
	}
}

// Beyond its share of the requests in work a key gets 503 and a time to come again, and other keys are served; large bodies
// have places of their own, so that they cannot shut out small ones.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	const share = v2.MaxLarge / 2
	w.backend.release, w.backend.entered = make(chan struct{}), make(chan struct{}, v2.MaxLarge+1)
	const row = `{"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`
	large := row + strings.Repeat(" ", 65<<10)
	done := make(chan int)
	ask := func(key, body string) { done <- w.send("POST", "/v2/models/digits/infer", key, body).code }
	for range share {
		go ask(digitsKey, large)
	}
	for range share {
		<-w.backend.entered
	}
	a := w.infer(large)
	a.refused(t, 503, "4 requests of this key are in work, its share of 8")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	go ask(slowKey, large)
	<-w.backend.entered
	go ask(digitsKey, row)
	<-w.backend.entered
	close(w.backend.release)
	for range share + 2 {
		if code := <-done; code != 200 {
			t.Errorf("one that was in work got %d", code)
		}
	}
}

// A key that sends its bodies slowly takes its share of the places and no more: others go on being served.
func TestSlowKeyShutsNobodyOut(t *testing.T) {
	w := newWorld(t)
	refused := 0
	for range v2.MaxInflight/2 + 8 {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", digitsKey)
		b := make([]byte, 64)
		n, err := c.Read(b) // 100 as soon as the body is waited for, in its place
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b[:n]), " 503 ") {
			refused++
		}
	}
	if refused != 8 {
		t.Errorf("%d were refused, want 8", refused)
	}
	a := w.send("POST", "/v2/models/digits/infer", slowKey, `{"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`)
	if a.code != 200 {
		t.Errorf("another key is shut out: %d %s", a.code, a.body)
	}
}

// A body that does not come whole ends the request, and no place stays taken.
func TestCutBody(t *testing.T) {
	w := newWorld(t)
	for range v2.MaxLarge + 2 {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n{", digitsKey)
		c.(*net.TCPConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		b := make([]byte, 64)
		n, _ := c.Read(b)
		if !strings.Contains(string(b[:n]), "408") {
			t.Errorf("answered %q", b[:n])
		}
		c.Close()
	}
	if a := w.infer(`{"inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}` + strings.Repeat(" ", 65<<10)); a.code != 200 {
		t.Errorf("afterwards: %d %s", a.code, a.body)
	}
}

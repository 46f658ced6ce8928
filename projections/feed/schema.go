package feed

import (
	"fmt"
	"reflect"

	"tensorturn/domain/event"
)

// draft is the JSON Schema dialect of everything here.
const draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is a JSON Schema as a value that encoding/json writes with sorted keys.
type Schema = map[string]any

// scalars are the JSON types of kinds without parts.
var scalars = map[reflect.Kind]string{
	reflect.Bool: "boolean", reflect.String: "string",
	reflect.Int: "integer", reflect.Int8: "integer", reflect.Int16: "integer", reflect.Int32: "integer", reflect.Int64: "integer",
	reflect.Uint: "integer", reflect.Uint8: "integer", reflect.Uint16: "integer", reflect.Uint32: "integer", reflect.Uint64: "integer",
	reflect.Float32: "number", reflect.Float64: "number",
}

// SchemaID names the schema of an event's data: a name that stays what it is wherever the hub moves.
func SchemaID(name string, version int) string {
	return fmt.Sprintf("urn:tensorturn:event:%s:v%d", name, version)
}

// Schemas gives the schema of the data of every event type that is told, by CloudEvents type. Fields that are always there
// are required; what is not named is allowed, since types grow.
func Schemas(r *event.Registry) map[string]Schema {
	out := map[string]Schema{}
	for _, name := range r.Names() {
		if Withheld(name) {
			continue
		}
		v := r.Latest(name)
		s := planOf(dataType(r, name)).schema()
		s["$schema"], s["$id"], s["title"] = draft, SchemaID(name, v), Type(name, v)
		out[Type(name, v)] = s
	}
	return out
}

func (p *plan) schema() Schema {
	switch {
	case p.time:
		return Schema{"type": "string", "format": "date-time"}
	case p.digest:
		return Schema{"type": "string", "pattern": "^([0-9a-f]{64})?$", "description": "SHA-256 in hex, or empty for none"}
	}
	switch p.kind {
	case reflect.Struct:
		return p.objectSchema()
	case reflect.Slice, reflect.Array:
		if p.kind == reflect.Slice && p.elem.kind == reflect.Uint8 {
			return Schema{"type": "string", "contentEncoding": "base64"}
		}
		return Schema{"type": "array", "items": p.elem.schema()}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": p.elem.schema()}
	case reflect.Pointer:
		return Schema{"anyOf": []any{p.elem.schema(), Schema{"type": "null"}}}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": []any{"number", "null"}} // null: not finite
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer", "minimum": 0}
	}
	return Schema{"type": scalars[p.kind]}
}

func (p *plan) objectSchema() Schema {
	properties, required := Schema{}, []any{}
	for _, f := range p.fields {
		properties[f.name] = f.plan.schema()
		if !f.omitEmpty {
			required = append(required, f.name)
		}
	}
	return Schema{"type": "object", "properties": properties, "required": required}
}

// EnvelopeSchema is the schema of what stands around the data: CloudEvents 1.0 and our extensions.
func EnvelopeSchema() Schema {
	text := func(what string) Schema { return Schema{"type": "string", "minLength": 1, "description": what} }
	return Schema{
		"$schema": draft, "$id": "urn:tensorturn:event:envelope:v1", "title": "tensorturn event", "type": "object",
		"required": []any{"specversion", "id", "source", "subject", "type", "time", "datacontenttype", "dataschema", "sequence", "actor", "summary", "data"},
		"properties": Schema{
			"specversion":     Schema{"const": "1.0"},
			"id":              text("the same at every delivery: drop what you have seen"),
			"source":          text("/hubs/<hub>"),
			"subject":         text("runs/<id>, machines/<id> or pool"),
			"type":            Schema{"type": "string", "pattern": `^tensorturn\.[a-z0-9-]+\.[a-z0-9-]+\.v[0-9]+$`},
			"time":            Schema{"type": "string", "format": "date-time"},
			"datacontenttype": Schema{"const": "application/json"},
			"dataschema":      text("id of the schema of data"),
			"sequence":        Schema{"type": "string", "pattern": "^[0-9]{20}$", "description": "place in the hub's log; facts about credentials are left out"},
			"prevhash":        Schema{"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 of the log record before; absent on the first"},
			"actor":           text("operator, hub or machine:<id>"),
			"correlation":     text("the command that began the story"),
			"summary":         text("one line for people"),
			"data":            Schema{"type": "object"},
		},
	}
}

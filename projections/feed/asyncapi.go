package feed

import (
	"maps"
	"slices"
	"strings"

	"tensorturn/domain/event"
)

// AsyncAPI describes the feed on NATS as an AsyncAPI 3.0 document, made from the types in r.
func AsyncAPI(r *event.Registry) Schema {
	schemas, messages, refs := Schema{"envelope": asyncSchema(EnvelopeSchema())}, Schema{}, Schema{}
	types := Schemas(r)
	for _, t := range slices.Sorted(maps.Keys(types)) {
		key := strings.ReplaceAll(t, ".", "_")
		schemas[key] = asyncSchema(types[t])
		messages[key] = Schema{
			"name": t, "title": t, "contentType": ContentType,
			"payload": Schema{"allOf": []any{
				Schema{"$ref": "#/components/schemas/envelope"},
				Schema{"type": "object", "properties": Schema{"type": Schema{"const": t}, "data": Schema{"$ref": "#/components/schemas/" + key}}},
			}},
		}
		refs[key] = Schema{"$ref": "#/components/messages/" + key}
	}
	return Schema{
		"asyncapi": "3.0.0",
		"info": Schema{
			"title": "tensorturn events", "version": "1.0.0",
			"description": "Every fact of a hub as CloudEvents 1.0 in structured JSON, at least once, in the order of the log. " +
				"An observer credential names a durable pull consumer on the stream FEED and the API prefix feed.API. Types only grow.",
		},
		"defaultContentType": ContentType,
		"servers": Schema{"hub": Schema{
			"host": "hub.example.org:7443", "pathname": "/nats", "protocol": "nats",
			"description": "NATS over WebSocket and TLS: wss://hub.example.org:7443/nats",
		}},
		"channels": Schema{"events": Schema{
			"address": SubjectPrefix + "{kind}.{id}.{fact}", "messages": refs,
			"parameters": Schema{
				"kind": Schema{"enum": []any{"run", "machine", "pool"}, "description": "kind of the aggregate"},
				"id":   Schema{"description": "its id"},
				"fact": Schema{"description": "the event name with _ for its dot"},
			},
		}},
		"operations": Schema{"publish": Schema{"action": "send", "channel": Schema{"$ref": "#/channels/events"}, "summary": "the hub publishes what has happened"}},
		"components": Schema{"schemas": schemas, "messages": messages},
	}
}

// asyncSchema drops what a schema inside the document must not repeat.
func asyncSchema(s Schema) Schema {
	s = maps.Clone(s)
	delete(s, "$schema")
	delete(s, "$id")
	return s
}

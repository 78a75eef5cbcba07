// Package speed measures the throughput of a stream. The protocol runs once per connection:
//
//	client → server   {"direction":"down","seconds":5}\n     at most 256 bytes
//	"down": server → client   bytes for that long, then the end of the stream; the client counts
//	"up":   client → server   bytes for that long, then the end of the stream; the server counts
//	        server → client   {"bytes":123,"seconds":5.01}\n
package speed

package appproxy

import (
	"io"
	"net/http"
	"sync/atomic"
)

// asks counts what a request sends.
func (t *Traffic) asks(r *http.Request) {
	if t != nil && r.Body != nil && r.Body != http.NoBody {
		r.Body = countedBody{r.Body, t.In}
	}
}

// answered counts what an answer brings.
func (t *Traffic) answered(resp *http.Response) {
	if t == nil {
		return
	}
	t.Status.CompareAndSwap(0, int32(resp.StatusCode))
	if both, ok := resp.Body.(io.ReadWriteCloser); ok { // a websocket
		resp.Body = countedStream{both, t.Out, t.In}
		return
	}
	resp.Body = countedBody{resp.Body, t.Out}
}

type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

type countedStream struct {
	io.ReadWriteCloser
	out, in *atomic.Int64
}

func (c countedStream) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.out.Add(int64(n))
	return n, err
}

func (c countedStream) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	c.in.Add(int64(n))
	return n, err
}

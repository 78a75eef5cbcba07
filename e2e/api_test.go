package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// call makes an API request as a plain client would, without our own client package, to check the wire format.
func call(method, url, token string, body, into any) error {
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, url, payload)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Coder-Session-Token", token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

func signIn(url, email string) (token string, err error) {
	var answer struct {
		SessionToken string `json:"session_token"`
	}
	err = call("POST", url+"/api/v2/users/login", "", map[string]string{"email": email, "password": password}, &answer)
	return answer.SessionToken, err
}

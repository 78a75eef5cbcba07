package signed_test

import (
	"bytes"
	"fmt"
	"log"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/signed"
)

func ExampleSigner() {
	signer, err := signed.New(bytes.Repeat([]byte{7}, 32)) // Load reads the deployment's own key
	if err != nil {
		log.Fatal(err)
	}
	token, err := signer.Sign("app", map[string]string{"workspace": "dev"}, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	var claims map[string]string
	fmt.Println(signer.Verify("app", token, &claims), claims["workspace"])
	fmt.Println(signer.Verify("login", token, &claims)) // a token is valid for one purpose only
	// Output:
	// <nil> dev
	// the token is not valid
}

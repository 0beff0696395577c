package importer

import (
	"fmt"
	"os"
	"testing"
)

func TestTry(t *testing.T) {
	if os.Getenv("TRY") == "" {
		t.Skip()
	}
	b, _ := os.ReadFile(os.Getenv("TRY"))
	r, err := Convert([]File{{os.Getenv("TRYNAME"), string(b)}}, Options{Source: os.Getenv("TRYSRC"), Dialect: os.Getenv("TRYDIALECT"), Timezone: os.Getenv("TRYTZ")})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(r.Text)
	fmt.Printf("%d %d %q\n", r.Carried, r.Refused, r.Warnings)
}

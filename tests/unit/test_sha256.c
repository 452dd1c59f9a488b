/* SHA-256 and HMAC-SHA256 against the vectors of FIPS 180-4, RFC 4231 and NIST's long message. */
#include "base/sha256.h"
#include "test.h"

static const char *hex(const unsigned char mac[SHA256_BYTES]) {
  static char text[2 * SHA256_BYTES + 1];
  for (int i = 0; i < SHA256_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", mac[i]);
  return text;
}

/* In portions of `step` bytes. */
static const char *hash(const void *data, size_t n, size_t step) {
  unsigned char out[SHA256_BYTES];
  sha256 s;
  sha256_begin(&s);
  for (size_t i = 0; i < n; i += step)
    sha256_add(&s, (const char *)data + i, n - i < step ? n - i : step);
  sha256_end(&s, out);
  return hex(out);
}

static const char *mac(const void *key, size_t n_key, const void *data, size_t n) {
  unsigned char out[SHA256_BYTES];
  hmac m;
  hmac_begin(&m, key, n_key);
  hmac_add(&m, data, n);
  hmac_end(&m, out);
  return hex(out);
}

TEST(sha256_gives_the_hashes_of_the_standard) {
  static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  CHECK_STR(hash("", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_STR(hash("abc", 3, 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_STR(hash(two, sizeof two - 1, 100),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(sha256_of_a_million_bytes_is_that_of_the_standard_in_any_portions) {
  static char a[1000000];
  memset(a, 'a', sizeof a);
  static const size_t step[] = {1, 63, 64, 65, 1000, sizeof a};
  for (size_t i = 0; i < sizeof step / sizeof *step; i++)
    CHECK_STR(hash(a, sizeof a, step[i]),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(hmac_gives_the_codes_of_rfc_4231) {
  unsigned char key[131], data[50];
  memset(key, 0x0b, 20);
  CHECK_STR(mac(key, 20, "Hi There", 8),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK_STR(mac("Jefe", 4, "what do ya want for nothing?", 28),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  memset(key, 0xaa, sizeof key);
  memset(data, 0xdd, sizeof data);
  CHECK_STR(mac(key, 20, data, 50),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  static const char larger[] = "Test Using Larger Than Block-Size Key - Hash Key First";
  CHECK_STR(mac(key, 131, larger, sizeof larger - 1),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(codes_that_differ_in_one_bit_are_not_equal) {
  unsigned char a[SHA256_BYTES] = {1}, b[SHA256_BYTES] = {1};
  CHECK(mac_is_equal(a, b));
  for (int i = 0; i < 8 * SHA256_BYTES; i++) {
    b[i / 8] ^= (unsigned char)(1 << i % 8);
    CHECK(!mac_is_equal(a, b));
    b[i / 8] ^= (unsigned char)(1 << i % 8);
  }
}

UPDATE templates SET identity_audiences = '{sts.amazonaws.com}', identity_build_audience = 'https://vault.example.com';

#include "quantize/calibration/calibration_data.h"

namespace leq {
namespace {

// No sentence of it stands in the calibration text.
constexpr std::string_view kText =
    R"(The ferry left at a quarter past six, before the fog had made up its mind. There were eleven of us on board, and a dog that
belonged to nobody. The captain, a woman with grey hair and a green coat, counted us twice and then counted the dog. "Twelve," she said,
as if that settled it, and the engine began to hum under our feet.

I had taken the same boat every Monday for nine years. I knew the bell buoy by its voice, and the two rocks they call the Sisters by the
way the water turns white around them. What I did not know, on that morning, was the man who sat beside me with a clock in his lap. It was
a kitchen clock, round and red, and it had stopped at four minutes to three.

"Is it broken?" I asked, because it seemed impolite not to.

"It is resting," he said. "It belonged to my mother. She wound it every Sunday after church, and when she died nobody remembered. I am
taking it to a person on the island who understands clocks. He does not repair them, exactly. He listens to them first."

I thought about that for a while. The fog came closer and the gulls went quiet. Somewhere ahead a horn sounded, long and low, and our own
horn answered. When a small sailing boat slid past, so near that I could have touched its mast, its skipper lifted his hat to us without
a word, and was gone.

When you plant a young tree, dig a hole that is twice as wide as its roots and no deeper. Loosen the earth at the sides, so that new roots
find their way out. Set the tree so that the place where the trunk begins to widen stands just above the ground. Fill the hole with the
same earth that you took out; there is no need to mix in anything. Press it down with your hands and not with your boots. Water slowly,
about ten litres, and again after two days. Spread bark or old leaves around it, a hand deep, but keep them away from the trunk. In its
first summer a tree needs a bucket of water every week without rain. In its third summer it can look after itself.

How does a bridge stay up? Take a plank across a ditch and stand in the middle. The plank bends, because its upper side is squeezed
together and its lower side is pulled apart. Stone is good at being squeezed and bad at being pulled, which is why people who built with
stone made arches: in an arch every block is pressed between its neighbours, and nothing is pulled. Steel is good at both. A hanging
bridge turns the arch around. Its cables are only ever pulled, and all of the load ends in two towers and in the ground behind them. The
longest bridges in the world are built in this way, and the limit is not the weight of the cars but the weight of the cables.

Dear Ms Okafor,

thank you for your letter of 3 March. We are sorry to hear that the second box did not arrive. Our records show that it left our house on
27 February and was last seen in Leeds on the first of this month. We have asked the carrier to look for it. If there is no news by Friday,
we will send you another set free of charge; please tell us whether the colour should be the same. The amount of 48.50 that you paid for
delivery will be returned to your account within five working days.

With kind regards,
P. Lindqvist

    Town        People    Height    Rain
    Arlen         4,210     312 m   790 mm
    Bexmouth     18,900      14 m   655 mm
    Corrow          730     588 m  1,120 mm

"You never told me that you could sing," said Nora.

"You never asked," said her brother. He was lying on the grass with his hat over his eyes. "And I cannot sing. I can only sing this one
song. If you ask me for another, you will see."

She asked him for another. He was right.

For three days it had snowed, and on the fourth the sun came out and every roof in the village began to drip. The children made a fort
with four towers behind the school. By noon two of the towers had fallen, and by evening there was only a wall, and on the wall sat a
crow that looked at everything as if it had been promised something better. The teacher rang the bell. Nobody wanted to go in. In the end
she went out herself, sat down on the wall beside the crow, and told them about a winter when she was small and the river had frozen so
hard that a circus crossed it with two elephants. It may even have been true.

To find the middle number of a list, put the numbers in order and take the one that has as many before it as behind it. If there is an
even count, take the two in the middle and halve their sum. For 3, 9, 4, 12 and 7 it is 7; for 3, 9, 4 and 12 it is 6.5. The middle number
does not care how large the largest is, and that is the whole point of it: one king who walks into an inn does not make the guests rich.

The clock man lived at the end of the only road. He had a long table under a window, and on it there were perhaps forty clocks, none of
which showed the same time. He took the red one in both hands, shook it a little, and held it to his ear. We waited. After a minute he
put it down, opened the back with a knife, and blew. Something very small and very old fell onto the table: a dead moth. He turned the
key three times. "There," he said. The clock began to tick as though it had only been waiting for somebody to be polite.
)";

}  // namespace

std::string_view built_in_heldout_text() { return kText; }

}  // namespace leq
